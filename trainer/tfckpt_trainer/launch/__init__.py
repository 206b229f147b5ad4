"""Starts workers, restarts them when one dies, and tells them where the others are."""
