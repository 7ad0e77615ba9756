"""Captured messages, as tools write them and people paste them."""
