comment on column readings.seq is 'The last entry that they have seen, on any of their devices. It goes back only if they mark entries as unread.';
