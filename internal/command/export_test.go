package command

// Workers is how many commands a server runs at once.
const Workers = workers
