package web

import "slices"

// settingsPage is one page of the settings. Path is the last part of its address.
type settingsPage struct{ Path, Title string }

var settingsPages = []settingsPage{{"settings", "House"}, {"members", "Members"}, {"bots", "Bots"}, {"environments", "Environments"}, {"sandboxes", "Sandboxes"}, {"keys", "API keys"}, {"models", "Models"}, {"secrets", "Secrets"}, {"retention", "Retention"}, {"audit", "Audit log"}}

// tabsOf returns the pages for the reader. Only owners may see what the house keeps, and the audit log.
func tabsOf(f layout) []settingsPage {
	if f.isOwner() {
		return settingsPages
	}
	return settingsPages[:len(settingsPages)-2]
}

// settingsTab returns the page of [settingsPages] with a path.
func settingsTab(path string) settingsPage {
	return settingsPages[slices.IndexFunc(settingsPages, func(p settingsPage) bool { return p.Path == path })]
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
