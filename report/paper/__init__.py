"""The paper as printed: its tables and sentences as data, and the audit of their arithmetic."""
