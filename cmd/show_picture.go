package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"subctl/internal/printer"
	"subctl/internal/progress"
)

// panel is what one command shows: sections for people, one value for programs.
type panel struct {
	sections []section
	data     func([]site) any
}

// picture is what a look at some clusters gave.
type picture struct {
	data  string // for stdout
	notes string // for stderr
	err   error
}

// differs reports whether a person would see a difference.
func (p picture) differs(from picture) bool {
	return p.data != from.data || p.notes != from.notes || fmt.Sprint(p.err) != fmt.Sprint(from.err)
}

// tell prints the picture and returns its error.
func (p picture) tell(g *globals) error {
	if _, err := io.WriteString(g.Out, p.data); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if _, err := io.WriteString(g.ErrOut, p.notes); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return p.err
}

// look reads all targets at once and draws p of what could be read.
func (s *show) look(ctx context.Context, targets []*target, p panel) picture {
	var reads []read
	for _, v := range p.sections {
		reads = append(reads, v.reads...)
	}
	sites, errs := make([]site, len(targets)), make([]error, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { sites[i], errs[i] = t.site(ctx, s.globals, reads) })
	}
	wg.Wait()

	var notes bytes.Buffer
	say := progress.New(&notes)
	var good []site
	var failed error
	for i, err := range errs {
		if err == nil {
			good = append(good, sites[i])
			continue
		}
		failed = err
		if len(targets) > 1 {
			say.Fail("cluster %q: %s", sites[i].name, printer.CleanLines(err.Error()))
		}
	}
	if n := len(targets) - len(good); n > 0 && len(targets) > 1 {
		failed = fmt.Errorf("%d of %d clusters could not be read", n, len(targets))
	}
	data, err := p.draw(good, len(targets) > 1, s.format.Format())
	if err == nil {
		err = failed
	}
	if judged := p.judge(good, say); err == nil {
		err = judged
	}
	return picture{data: data, notes: notes.String(), err: err}
}

// draw renders what was read.
func (p panel) draw(sites []site, heads bool, format printer.Format) (string, error) {
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
			fmt.Fprintf(&b, "Cluster %q\n", s.name)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// drawSite renders one cluster for people, with a blank line between sections.
func (p panel) drawSite(s site, format printer.Format) (string, error) {
	var b bytes.Buffer
	for _, v := range p.sections {
		if v.joined && !s.joined() {
			continue
		}
		var table bytes.Buffer
		if err := v.table(&table, format, s); err != nil {
			return "", err
		}
		if table.Len() > 0 && b.Len() > 0 {
			fmt.Fprintln(&b)
		}
		b.Write(table.Bytes())
	}
	return b.String(), nil
}

// judge says what is wrong with what was read, and returns the error to end with.
func (p panel) judge(sites []site, say *progress.Reporter) error {
	var ill error
	var missing []string
	bare := true
	for _, s := range sites {
		bare = bare && !s.joined() && len(s.brokers) == 0
		left := false
		for _, v := range p.sections {
			if v.joined && !s.joined() {
				left = true
				continue
			}
			for _, text := range v.trouble(s) {
				say.Warn("cluster %q: %s", s.name, printer.CleanLines(text))
				ill = trouble()
			}
			if text := v.remark(s); text != "" && len(p.sections) == 1 {
				say.Warn("cluster %q: %s", s.name, printer.CleanLines(text))
			}
		}
		if left {
			missing = append(missing, fmt.Sprintf("Submariner is not installed on cluster %q: run \"subctl join\"", s.name))
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
