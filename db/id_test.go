package db_test

import (
	"regexp"
	"testing"

	"github.com/arbe-dev/arbe/db"
)

func TestAWordStandsForOneIdInAHouse(t *testing.T) {
	t.Parallel()
	id := db.IDFor("house1", "word")
	if id != db.IDFor("house1", "word") {
		t.Error("it stands for another one each time")
	}
	for _, other := range []string{db.IDFor("house2", "word"), db.IDFor("house1", "words"), db.IDFor("house1w", "ord"), db.IDFor("house1", id)} {
		if other == id {
			t.Errorf("%s is another's too", id)
		}
	}
	if !regexp.MustCompile("^[0-9abcdefghjkmnpqrstvwxyz]{20}$").MatchString(id) {
		t.Errorf("it is %q", id)
	}
}
