"""Acceptance agent for rented GPU servers: judges a contract on the node itself."""

__version__ = "0.1.0"
