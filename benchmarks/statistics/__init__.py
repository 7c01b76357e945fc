"""Do tests, intervals and claims hold what they promise."""
