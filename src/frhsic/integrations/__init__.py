"""Audits in the tools of others; each module imports its library only when it is used."""
