-- One schema for each ledger; a server never makes one by itself.
CREATE SCHEMA people;
