"""Measuring: what `bnnrt bench` writes, compares and shows, and the peers that it stands beside."""
