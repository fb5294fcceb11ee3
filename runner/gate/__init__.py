"""Provider side: the listener's server, the policy on it, and the record."""
