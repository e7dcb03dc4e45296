package web

// Routes are the patterns of all routes of the app.
func Routes() []string {
	var patterns []string
	for _, r := range new(app).routes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// Enter counts topics as a connection of a session does.
func (f *Following) Enter(session string, n int) (leave func(), err error) {
	return (*following)(f).enter(session, n)
}

// Following counts the topics of sessions.
type Following following

// MaxFollowed limits the topics that all connections of one session follow.
const MaxFollowed = maxFollowed
