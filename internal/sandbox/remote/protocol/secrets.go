package protocol

// SecretFolder holds the files of secrets. It is in memory, and only processes of the group [SecretGroup] and the owner of the
// folder write in it. The box's user may belong to that group only in the process that handles Secrets.
const (
	SecretFolder = "/run/secrets"
	SecretGroup  = 65533
	// SecretSpace limits the folder, in bytes. Each file takes up whole pages.
	SecretSpace = 4 << 20
)

// Secrets is the operation that writes the files of Request.Secrets for the command ID, which is about to be launched. They stay
// until the command has ended or was forgotten, or was not launched. Then those are removed that no other running command has.
const Secrets Op = "secrets"

const (
	// NoSecrets means that the box has no [SecretFolder].
	NoSecrets Reason = "secrets"
	// SecretsLost means that a command was not launched, because its files are not there any more: the box was started again.
	SecretsLost Reason = "lost"
)
