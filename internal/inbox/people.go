package inbox

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
)

// maxPeople limits the people of a house who can be mentioned, to those who joined first.
const maxPeople = 1000

// Person is a person of a house.
type Person struct {
	ID string
	// Handles are the names with which others mention the person.
	Handles []string
}

// PeopleTx returns the people of a house who can be mentioned. taken holds the handles of its bots, which always mean the
// bots.
func (b *Inboxes) PeopleTx(ctx context.Context, tx pgx.Tx, house string, taken []string) (people []Person, err error) {
	rows, err := b.q.PeopleOfHouse(ctx, tx, house, maxPeople)
	for _, r := range rows {
		handles := slices.DeleteFunc(entry.HandlesOf(r.Name), func(h string) bool { return slices.Contains(taken, h) })
		if len(handles) > 0 {
			people = append(people, Person{ID: r.ID, Handles: handles})
		}
	}
	return people, err
}
