package web

// unsent is an error that refuses a person's text. The error page gives the text back, so that it is not lost.
type unsent struct {
	error
	// Action is the form's address, Fields its other values, and Text the person's text.
	Action string
	Fields map[string]string
	Text   string
}

// Unwrap returns the reason.
func (u *unsent) Unwrap() error { return u.error }
