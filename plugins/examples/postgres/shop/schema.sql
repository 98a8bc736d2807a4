-- Adding to a sum is what must not happen twice; handled says for which records it
-- has happened. Rows of it older than any record that can come again may go.
CREATE TABLE IF NOT EXISTS handled (
	record_id  text        PRIMARY KEY,
	handled_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS customers (
	name        text   PRIMARY KEY,
	spent_cents bigint NOT NULL CHECK (spent_cents >= 0)
);
CREATE TABLE IF NOT EXISTS orders (
	id          text   PRIMARY KEY,
	customer    text   NOT NULL REFERENCES customers (name),
	total_cents bigint NOT NULL
);
