package web

// settingsPage is one page of the settings. Path is the last part of its address. Only owners see a page for Owners.
type settingsPage struct {
	Path, Title string
	Owners      bool
}

// settingsGroups are the pages of the settings, as the list of them is grouped.
var settingsGroups = []struct {
	Title string
	Pages []settingsPage
}{
	{"House", []settingsPage{{Path: "settings", Title: "General"}, {Path: "members", Title: "Members"}, {Path: "retention", Title: "Retention", Owners: true}, {Path: "audit", Title: "Audit log", Owners: true}}},
	{"Bots", []settingsPage{{Path: "bots", Title: "Bots"}, {Path: "models", Title: "Models"}}},
	{"Work", []settingsPage{{Path: "environments", Title: "Environments"}, {Path: "sandboxes", Title: "Sandboxes"}}},
	{"Access", []settingsPage{{Path: "secrets", Title: "Secrets"}, {Path: "keys", Title: "API keys"}}},
}

// seenBy reports whether the reader may open the page.
func (p settingsPage) seenBy(f layout) bool { return !p.Owners || f.isOwner() }

// settingsTab returns the page of [settingsGroups] with a path.
func settingsTab(path string) settingsPage {
	for _, g := range settingsGroups {
		for _, p := range g.Pages {
			if p.Path == path {
				return p
			}
		}
	}
	panic("the settings have no page " + path)
}

// address returns the page's address for a house.
func (p settingsPage) address(house string) string { return settingsPath(house, p.Path) }

// settingsTopics returns the topics of a page of the settings.
func settingsTopics(f layout) string {
	text := mineTopic(f).String() + " " + houseTopic(f).String()
	for _, t := range f.Also {
		text += " " + t.String()
	}
	return text
}

// problems holds the errors of a form, by field. An error that is not about a single field has the empty name.
type problems map[string]string

// add records an error of a field, unless the field already has one.
func (p problems) add(field, what string) {
	if p[field] == "" {
		p[field] = what
	}
}

// roleWord returns a role for use in a sentence, and roleTitle for use on its own.
func roleWord(role string) string {
	if role == "owner" {
		return "an owner"
	}
	return "a " + role
}

func roleTitle(role string) string {
	if role == "owner" {
		return "Owner"
	}
	return "Member"
}
