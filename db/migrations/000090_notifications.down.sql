drop function claim_digests, claim_push_devices, has_news, add_push_device;
drop index notices_newest;
drop table push_positions, push_devices, notification_settings;
