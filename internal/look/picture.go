package look

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"subctl/internal/printer"
	"subctl/internal/progress"
)

// Panel is the output of one command: sections for people, and one value for programs.
type Panel struct {
	sections []Section
	data     func([]Site) any
}

// NewPanel returns a panel of sections. The value for programs is a list of rows if there is
// one section, and otherwise an object with a list for each section.
func NewPanel(sections ...Section) Panel {
	if len(sections) == 1 {
		return Panel{sections, sections[0].data}
	}
	return Panel{sections, func(sites []Site) any {
		all := map[string]any{}
		for _, s := range sections {
			all[s.Noun] = s.data(sites)
		}
		return all
	}}
}

// ErrTrouble reports that everything was read, and that there are problems, which the notes
// of the picture describe.
var ErrTrouble = errors.New("trouble found")

// Picture is the result of Look.
type Picture struct {
	Data  string // for stdout
	Notes string // for stderr
	// Err is nil if there are no problems, ErrTrouble if there are, and another error if
	// not everything could be read.
	Err error
}

// Differs reports whether the pictures look different.
func (p Picture) Differs(from Picture) bool {
	return p.Data != from.Data || p.Notes != from.Notes || fmt.Sprint(p.Err) != fmt.Sprint(from.Err)
}

// ReadAll reads all targets concurrently. Each site has an error, which may be nil.
func ReadAll(ctx context.Context, targets []*Target, reads ...Read) ([]Site, []error) {
	sites := make([]Site, len(targets))
	errs := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { sites[i], errs[i] = t.read(ctx, reads) })
	}
	wg.Wait()
	return sites, errs
}

// Look reads all targets concurrently, and draws what could be read.
func (p Panel) Look(ctx context.Context, targets []*Target, format printer.Format) Picture {
	var reads []Read
	for _, v := range p.sections {
		reads = append(reads, v.reads...)
	}
	sites, errs := ReadAll(ctx, targets, reads...)
	var notes bytes.Buffer
	say := progress.New(&notes)
	var good []Site
	var failed error
	for i, err := range errs {
		if err == nil {
			good = append(good, sites[i])
			continue
		}
		failed = err
		if len(targets) > 1 {
			say.Fail("cluster %q: %s", sites[i].Name, printer.CleanLines(err.Error()))
		}
	}
	if n := len(targets) - len(good); n > 0 && len(targets) > 1 {
		failed = fmt.Errorf("%d of %d clusters could not be read", n, len(targets))
	}
	data, err := p.draw(good, len(targets) > 1, format)
	if err == nil {
		err = failed
	}
	if judged := p.judge(good, say); err == nil {
		err = judged
	}
	return Picture{Data: data, Notes: notes.String(), Err: err}
}

// draw renders the sites.
func (p Panel) draw(sites []Site, heads bool, format printer.Format) (string, error) {
	var b bytes.Buffer
	if format.Structured() {
		err := printer.Encode(&b, format, p.data(sites))
		return b.String(), err
	}
	for _, s := range sites {
		text, err := p.drawSite(s, format)
		if err != nil {
			return "", err
		}
		if text == "" {
			continue
		}
		if b.Len() > 0 {
			fmt.Fprintln(&b)
		}
		if heads {
			fmt.Fprintf(&b, "Cluster %q\n", s.Name)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// drawSite renders one site as text, with blank lines between sections.
func (p Panel) drawSite(s Site, format printer.Format) (string, error) {
	var b bytes.Buffer
	for _, v := range p.sections {
		if v.absent(s) {
			continue
		}
		var table bytes.Buffer
		if err := v.table(&table, format, s); err != nil {
			return "", err
		}
		if table.Len() > 0 && b.Len() > 0 {
			fmt.Fprintln(&b)
		}
		if table.Len() > 0 && len(p.sections) > 1 {
			fmt.Fprintf(&b, "%s%s:\n", strings.ToUpper(v.Noun[:1]), v.Noun[1:])
		}
		b.Write(table.Bytes())
	}
	return b.String(), nil
}

// judge reports the problems of the sites, and returns the error of the picture.
func (p Panel) judge(sites []Site, say *progress.Reporter) error {
	var ill error
	var missing []string
	bare := true
	for _, s := range sites {
		bare = bare && !s.Joined() && len(s.Brokers) == 0
		if text := s.Leaving(); text != "" {
			say.Warn("cluster %q: %s", s.Name, text)
			ill = ErrTrouble
		}
		left := false
		said := map[string]bool{} // several sections may have the same problem
		for _, v := range p.sections {
			if v.absent(s) {
				left = true
				continue
			}
			for _, text := range v.trouble(s) {
				if !said[text] {
					say.Warn("cluster %q: %s", s.Name, printer.CleanLines(text))
				}
				said[text] = true
				ill = ErrTrouble
			}
			if len(p.sections) > 1 {
				continue
			}
			if text := v.none(s); text != "" {
				say.Note("cluster %q: %s", s.Name, printer.CleanLines(text))
			}
			if text := v.remark(s); text != "" {
				say.Warn("cluster %q: %s", s.Name, printer.CleanLines(text))
			}
		}
		if left {
			missing = append(missing,
				fmt.Sprintf("Submariner is not installed on cluster %q: run \"subctl join\"", s.Name))
		}
	}
	if bare && len(missing) == 1 && len(sites) == 1 {
		return errors.New(missing[0])
	}
	for _, text := range missing {
		say.Warn("%s", text)
	}
	if bare && len(missing) > 0 {
		return errors.New("none of the clusters has joined")
	}
	return ill
}
