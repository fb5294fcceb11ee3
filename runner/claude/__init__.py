"""The agent under test: how it is launched, what it wrote, and whether the skill ran."""
