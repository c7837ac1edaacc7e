package cli

import (
	"context"
	"errors"
)

// Exit codes.
const (
	ExitDone    = 0
	ExitFailed  = 1
	ExitUsage   = 2 // the command line is wrong
	ExitTrouble = 3 // the command worked, and found a problem, or the result of its change did not appear in time
)

// exitError carries an exit code. If err is nil, nothing is printed, because the command has
// already reported the problem.
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

// UsageError marks err as a mistake on the command line.
func UsageError(err error) error { return &exitError{ExitUsage, err} }

// Trouble returns the error of a command that has found and reported a problem.
func Trouble() error { return &exitError{code: ExitTrouble} }

// Waited returns the error of a command that has made its change, and has waited for the result
// until a problem was found, or the time limit was reached; ctx has no such limit.
func Waited(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil { // interrupted
		return err
	}
	return &exitError{ExitTrouble, err}
}

// ExitCode returns the exit code of a command that returned err.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return ExitFailed
}

// Reported reports whether the command that returned err has already printed the problem.
func Reported(err error) bool {
	var e *exitError
	return errors.As(err, &e) && e.err == nil
}
