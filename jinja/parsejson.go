package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// ParseJSON returns the value of a JSON text, with the members of objects in their order.
func ParseJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := parseJSON(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return value, nil
}

func parseJSON(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(t.String(), 10, 64); err == nil {
			return n, nil
		}
		return strconv.ParseFloat(t.String(), 64)
	case json.Delim:
		return parseMembers(d, t)
	}
	return token, nil // a string, a bool or nil
}

// parseMembers returns the list or mapping that begins with a delimiter.
func parseMembers(d *json.Decoder, begin json.Delim) (any, error) {
	dict, items := NewDict(), []any{}
	for d.More() {
		key := ""
		if begin == '{' {
			token, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ = token.(string) // the decoder accepts nothing else
		}
		value, err := parseJSON(d)
		if err != nil {
			return nil, err
		}
		if begin == '{' {
			dict.setString(key, value)
		} else {
			items = append(items, value)
		}
	}
	if _, err := d.Token(); err != nil { // the end
		return nil, err
	}
	if begin == '{' {
		return dict, nil
	}
	return newList(items), nil
}
