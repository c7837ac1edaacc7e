package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ReadJoinFile reads a join file whose token has not expired at now. Every error names the
// file, what is wrong with it and the remedy.
func ReadJoinFile(path string, now time.Time) (*JoinFile, error) {
	f, err := ReadOldJoinFile(path)
	if err != nil {
		return nil, err
	}
	if err := f.Expired(now); err != nil {
		return nil, fmt.Errorf("join file %s %w", path, err)
	}
	return f, nil
}

// ReadOldJoinFile reads a join file for its pre-shared key. The token may have expired.
func ReadOldJoinFile(path string) (*JoinFile, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading join file: %w", err)
	}
	f, err := DecodeJoinFile(b)
	if err != nil {
		return nil, fmt.Errorf("join file %s %w", path, err)
	}
	return f, nil
}

// WriteFile writes the join file atomically, readable by its owner only. If the file
// exists, it is kept under another name, which ends in the time now. WriteFile returns that
// name.
func (f *JoinFile) WriteFile(path string, now time.Time) (kept string, err error) {
	content, err := f.Encode()
	if err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("writing join file: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err2 := tmp.Sync(); err == nil {
		err = err2
	}
	if err2 := tmp.Close(); err == nil {
		err = err2
	}
	if err != nil {
		return "", fmt.Errorf("writing join file: %w", err)
	}
	if _, err := os.Lstat(path); err == nil {
		kept = spareName(path, now)
		if err := os.Rename(path, kept); err != nil {
			return "", fmt.Errorf("keeping the old join file: %w", err)
		}
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return kept, fmt.Errorf("writing join file: %w", err)
	}
	return kept, nil
}

// spareName returns the name that upstream gives to an older file, with a number if that
// name is in use.
func spareName(path string, now time.Time) string {
	name := path + "." + strings.ReplaceAll(now.Format(time.RFC3339), ":", "_")
	for i, spare := 2, name; ; i++ {
		if _, err := os.Lstat(spare); err != nil {
			return spare
		}
		spare = fmt.Sprintf("%s.%d", name, i)
	}
}
