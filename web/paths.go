package web

import "net/url"

// The addresses of the app: ids are escaped here and nowhere else, so that none is escaped twice or not at all.

func threadPath(id string) string { return "/threads/" + url.PathEscape(id) }
func housePath(id string) string  { return "/houses/" + url.PathEscape(id) }

// entryPath leads to an entry at any position of a log. The query is for browsers without the script, because a server
// does not get the fragment, which marks the entry.
func entryPath(thread string, seq int64) string {
	n := decimal(seq)
	return threadPath(thread) + "?at=" + n + "#e" + n
}

func cancelPath(thread, command string) string {
	return threadPath(thread) + "/commands/" + url.PathEscape(command) + "/cancel"
}

func olderPath(thread string, before int64) string {
	return threadPath(thread) + "/entries?before=" + decimal(before)
}

func newerPath(thread string, after int64) string {
	return threadPath(thread) + "/entries?after=" + decimal(after)
}

func wholePath(thread string, seq int64) string {
	return threadPath(thread) + "/entries/" + decimal(seq)
}

func artifactsPath(thread string) string { return threadPath(thread) + "/artifacts" }

// pagePath leads to a page of a list by its token.
func pagePath(list, token string) string {
	if token == "" {
		return list
	}
	return list + "?page=" + url.QueryEscape(token)
}

func memberPath(house, agent string) string {
	return settingsPath(house, "members") + "/" + url.PathEscape(agent)
}

func botPath(house, bot string) string {
	return settingsPath(house, "bots") + "/" + url.PathEscape(bot)
}

func environmentPath(id string) string { return "/environments/" + url.PathEscape(id) }
