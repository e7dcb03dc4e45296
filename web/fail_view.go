package web

// unsent is an error that refuses what a person wrote. The error page gives their text back, so that it is not lost.
type unsent struct {
	error
	// Action is the form's address, Fields are its other values, and Text is what they wrote.
	Action string
	Fields map[string]string
	Text   string
}

// Unwrap returns the reason.
func (u *unsent) Unwrap() error { return u.error }
