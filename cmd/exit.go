package cmd

import "errors"

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // the command line is wrong
	exitTrouble = 3 // the command worked, and what it looked at is not well
)

// exitError carries an exit code. Without err nothing is printed: the command
// has said it already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "trouble found"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError marks err as a mistake on the command line.
func usageError(err error) error { return &exitError{exitUsage, err} }

// trouble ends a command that looked and found something wrong, and has printed it.
func trouble() error { return &exitError{code: exitTrouble} }

func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailed
}
