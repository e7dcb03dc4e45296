drop function live_sandboxes;
