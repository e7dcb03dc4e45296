package web

// childGoneWords says that the thread of a card was deleted.
const childGoneWords = "Its thread was deleted."
