"""Image files to pixels, and pixels to bits."""
