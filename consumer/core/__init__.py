"""The pure core: the same messages in, the same outcomes out; no I/O and no clock."""
