drop trigger link_new on streams;
drop function begin_wakes, subscription_tails, house_of_wake, link_new_stream;
drop table subscription_streams, subscriptions;
