package cmd

import (
	"context"
	"errors"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // the command line is wrong
	exitTrouble = 3 // the command worked, and found a problem, or the result of its change did not appear in time
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

// usageError marks err as a mistake on the command line.
func usageError(err error) error { return &exitError{exitUsage, err} }

// trouble returns the error of a command that has found and reported a problem.
func trouble() error { return &exitError{code: exitTrouble} }

// waited returns the error of a command that has made its change, and has waited for the result
// until a problem was found, or the time limit was reached; ctx has no such limit.
func waited(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil { // interrupted
		return err
	}
	return &exitError{exitTrouble, err}
}

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
