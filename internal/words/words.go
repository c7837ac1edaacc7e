// Package words makes the phrases that messages of several packages need: which name
// was meant, lists of names, numbers of things, and times.
package words

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// longest is the maximum length of a name that Nearest looks at. Some names come from other
// clusters, and comparing takes time.
const longest = 64

// Nearest returns the candidate that a person who wrote name most likely meant; empty
// if none is similar. At most two letters may differ, and no more than half of the
// letters; otherwise name must be the beginning of the candidate.
func Nearest(name string, candidates []string) string {
	if len(name) > longest {
		return ""
	}
	best := ""
	most := min(2, len(name)/2)
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d <= most &&
			(best == "" || d < distance(strings.ToLower(name), strings.ToLower(best))) {
			best = c
		}
	}
	if best != "" || len(name) < 3 {
		return best
	}
	for _, c := range candidates {
		if strings.HasPrefix(c, name) {
			return c
		}
	}
	return ""
}

// Meant returns the end of a message about an unknown name: it suggests the candidate that is
// Nearest, if any.
func Meant(name string, candidates []string) string {
	if near := Nearest(name, candidates); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// distance returns the Levenshtein distance: how many letters must be added, removed
// or replaced to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// listed is the maximum number of names that List writes out.
const listed = 10

// List enumerates names, and counts the rest of a long list.
func List(names []string) string {
	if n := len(names) - listed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:listed], ", "), n)
	}
	return strings.Join(names, ", ")
}

// Count returns a number of things, such as "1 pair" and "2 pairs".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Duration spells a time out to the second, such as "5 minutes" and "1 hour 30 minutes".
func Duration(d time.Duration) string {
	d = d.Round(time.Second)
	if d <= 0 {
		return "0 seconds"
	}
	var parts []string
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := d / unit.is; n > 0 {
			parts = append(parts, Count(int(n), unit.name))
		}
		d %= unit.is
	}
	return strings.Join(parts, " ")
}

// Ago tells how long ago something was, to the second or, if it was more than an hour ago, to the
// minute.
func Ago(d time.Duration) string {
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	return Duration(d) + " ago"
}

// Distinct returns the different values of list but "", sorted.
func Distinct(list []string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	slices.SortFunc(list, strings.Compare)
	return slices.Compact(list)
}

// Prefix returns err with a prefix before each of its lines, which are one mistake each;
// nil if err is nil.
func Prefix(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return errors.New(prefix + strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
}

// Clip shortens a text to a number of bytes, before " …".
func Clip(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
