package web

// profileView is the page on which a reader changes their name. Back is the page to return to; empty for this one.
type profileView struct {
	Layout     layout
	Name, Back string
	Problems   problems
	Saved      bool
}
