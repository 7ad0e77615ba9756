"""Acceptance records of a time range as one HTML page that needs nothing else."""
