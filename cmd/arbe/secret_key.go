package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

func secretKey(a *app) *cobra.Command {
	return group(a, "secret-key", "Make the key that seals what is secret in the database", secretKeyCreate)
}

// secretKeyCreate makes a secret key. It needs no server and no database, because a new installation has neither yet.
func secretKeyCreate(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a secret key (ARBE_SECRET_KEY)",
		Long: "Create a secret key for a new installation, and print it. All servers of one database have the same one, in\n" +
			"ARBE_SECRET_KEY or in the file secret.key of their data directory. Keep it apart from backups of the\n" +
			"database: whoever has both can read the sealed values; without the key nobody can.\n\n" +
			"A server that finds no key creates one in its data directory at its first start.",
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			key, err := server.NewSecretKey()
			if err != nil {
				return err
			}
			if out == "" {
				return a.show(key, struct {
					SecretKey string `json:"secret_key"`
				}{key}, func() string { return key })
			}
			if err := writeNew(out, key+"\n"); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"path": out})
			}
			a.say("the key is in %s", out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write the key to this new file, readable by you alone, instead of printing it")
	return cmd
}

// writeNew writes a file that only its owner can read. It refuses to replace a file, because a key that is overwritten
// is lost.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fault.Newf(fault.Exists, "name a new file: a key that is overwritten is lost, with all that it sealed", "the file %s is there already", path).Because(err)
	case err != nil:
		return fault.Newf(fault.Precondition, "name a file in a directory that you may write to", "the file %s cannot be made", path).Because(err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fault.Newf(fault.Exhausted, "free some space, or name another file", "the file %s cannot be written", path).Because(errors.Join(err, os.Remove(path)))
	}
	return nil
}
