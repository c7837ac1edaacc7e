package clusterdns

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"subctl/services"
)

// This file finds, adds and removes our block in the text of a Corefile.

// errMarkers is the reason why a text with our comments is not changed.
var errMarkers = fmt.Errorf("it does not have exactly one comment %q, and after it one %q", begin, end)

// find returns the offsets of our block in a text, from the beginning of its first line to the end
// of its last one, without the newline. found is false if there is none.
func find(text string) (from, to int, found bool, err error) {
	from = -1
	to = -1
	offset := 0
	for line := range strings.SplitAfterSeq(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, begin):
			if from >= 0 {
				return 0, 0, false, errMarkers
			}
			from = offset
		case strings.HasPrefix(trimmed, end):
			if from < 0 || to >= 0 {
				return 0, 0, false, errMarkers
			}
			to = offset + len(strings.TrimSuffix(line, "\n"))
		}
		offset += len(line)
	}
	if from < 0 && to < 0 {
		return 0, 0, false, nil
	}
	if to < 0 {
		return 0, 0, false, errMarkers
	}
	return from, to, true, checkCut(text, from, to)
}

// checkCut returns an error if a part of a text is not a server block of ours by itself: if it is
// within a quoted string or another block, or has blocks of others.
func checkCut(text string, from, to int) error {
	_, errBefore := parse(text[:from])
	ours, errOurs := parse(text[from:to])
	_, errAfter := parse(text[to:])
	if err := cmp.Or(errBefore, errOurs, errAfter); err != nil {
		return fmt.Errorf("its comments %q and %q do not enclose a complete server block", begin, end)
	}
	others := func(s server) bool {
		return slices.ContainsFunc(s.keys, func(key string) bool { return !isDomain(key) })
	}
	if len(ours.imports) > 0 || slices.ContainsFunc(ours.servers, others) {
		return fmt.Errorf("its comments %q and %q enclose more than the block of %s", begin, end, services.Domain)
	}
	return nil
}

// cut returns a text without our block, as it was before put.
func cut(text string) (string, error) {
	from, to, found, err := find(text)
	if err != nil || !found {
		return text, err
	}
	if to < len(text) {
		to++ // the newline after it
	} else if from > 0 {
		from-- // the newline that put added, since the text had none at its end
	}
	return text[:from] + text[to:], nil
}

// put returns a text with our block: in the place where it is, or else at the end.
func put(text, block string) (string, error) {
	from, to, found, err := find(text)
	switch {
	case err != nil:
		return text, err
	case found:
		text = text[:from] + block + text[to:]
	case text == "" || strings.HasSuffix(text, "\n"):
		text += block + "\n"
	default:
		text += "\n" + block
	}
	_, _, _, err = find(text) // a quoted string may have no end
	return text, err
}
