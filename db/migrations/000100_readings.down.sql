comment on column readings.seq is 'The last entry that they have seen, on any of their devices. It never goes back.';
