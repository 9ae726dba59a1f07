"""Sealing a run and checking a seal: safe archives, signatures, timestamps, and judging the contents again.

``cryptography`` and ``rfc3161-client`` (the extra ``seal``) are imported here alone, and only when they are needed.
"""
