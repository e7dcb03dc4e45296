drop trigger link_new on streams;
drop table subscription_streams, subscriptions;
drop function link_new_stream, subscription_tails, begin_wakes, house_of_wake;
