package house

// Creation says who may create houses. An operator, here, is an owner of the installation's first house.
type Creation string

// Who may create houses.
const (
	// Anyone allows everyone who has an account.
	Anyone Creation = "anyone"
	// Members allows everyone who is in a house.
	Members Creation = "members"
	// Operators allows only operators.
	Operators Creation = "operators"
)

// Creations are all values of [Creation].
var Creations = []Creation{Anyone, Members, Operators}
