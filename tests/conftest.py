"""Settings of all tests."""

from hypothesis import settings

# A time limit an example would fail on a busy machine, and measure nothing.
settings.register_profile("bnnrt", deadline=None)
settings.load_profile("bnnrt")
