"""The loss atlas: what frameworks compute under a method's name, by running each one's own loss code."""
