"""What is done with a session's history: rewound, branched, carried elsewhere, read in views, checked and repaired."""
