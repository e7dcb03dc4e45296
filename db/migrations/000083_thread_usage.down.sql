drop index spending_of_thread;
