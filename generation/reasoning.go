package generation

import "strings"

// A Part is what one pass adds to an answer. Both texts are empty if they are held back.
type Part struct {
	Reasoning string // what the model thinks before it answers; only of messages
	Text      string
}

// A separator divides the text of a message into reasoning and answer.
type separator interface {
	next(special, text string) Part // special: the name of a special token that follows the text, or empty
	end() Part                      // what was held back
}

// tags enclose the reasoning at the beginning of a message.
type tags struct{ open, close string }

// reasoningTags are the tags of models that write their reasoning in the same message, as in the chat templates among
// llama.cpp's tests (models/templates).
var reasoningTags = []tags{
	{"<think>", "</think>"},                                      // DeepSeek R1, Qwen3, GLM and most others
	{"[THINK]", "[/THINK]"},                                      // Ministral, Magistral
	{"<seed:think>", "</seed:think>"},                            // Seed-OSS
	{"<mm:think>", "</mm:think>"},                                // MiniMax M3
	{"<|START_THINKING|>", "<|END_THINKING|>"},                   // Command
	{"<|channel>thought\n", "<channel|>"},                        // Gemma 4, where <|channel> is a special token
	{"<|inner_prefix|>", "<|inner_suffix|>"},                     // Apertus
	{"<think:opensource>", "</think:opensource>"},                // Hunyuan 3
	{"Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"}, // Apriel
}

// Special tokens of harmony, the format of messages of gpt-oss (github.com/openai/harmony, docs/format.md).
const (
	harmonyStart   = "<|start|>"
	harmonyChannel = "<|channel|>"
	harmonyMessage = "<|message|>"
	harmonyFinal   = "final" // the channel of the answer
)

// separator returns what divides the answer to a prompt; nil if the model has no reasoning. Its chat template and its
// vocabulary decide, not its name.
func (t *Text) separator(prompt []int32) separator {
	if t.has(harmonyChannel) && t.has(harmonyMessage) {
		return &channels{}
	}
	for _, tag := range reasoningTags {
		if t.has(tag.close) || strings.Contains(t.Template, tag.close) {
			s := &thoughts{tags: tag}
			if strings.HasSuffix(strings.TrimRight(t.tail(prompt), whiteSpace), strings.TrimRight(tag.open, whiteSpace)) {
				s.state = thinking // the template begins the reasoning
			}
			return s
		}
	}
	return nil
}

func (t *Text) has(token string) bool {
	_, ok := t.Tokenizer.ID(token)
	return ok
}

// tail returns the text of the last tokens of a prompt, with special tokens: more than a tag has.
func (t *Text) tail(prompt []int32) string {
	const tokens = 32
	var text strings.Builder
	stream := t.Tokenizer.Stream(false)
	for _, id := range prompt[max(0, len(prompt)-tokens):] {
		part, _ := stream.Next(uint32(id)) // a token that only the model has is no text
		text.WriteString(part)
	}
	return text.String()
}

const whiteSpace = " \t\r\n"

// thoughts separate reasoning between tags from the answer after it. White space around the reasoning is left out.
type thoughts struct {
	tags    tags
	state   thought
	held    string
	written bool // a part of the reasoning was returned
}

// A thought is a place in a message.
type thought int

const (
	beginning thought = iota // before anything but white space: the opening tag may follow
	thinking
	concluded // after the reasoning, before the answer
	answering
)

func (s *thoughts) next(special, text string) (p Part) {
	s.held += text
	opens := s.state == beginning && strings.HasPrefix(s.tags.open, special)
	if closes := special == s.tags.close && s.state <= thinking; opens || closes { // elsewhere they are no part of the text
		s.held += special
	}
	if s.state == beginning {
		begun := strings.TrimLeft(s.held, whiteSpace)
		if rest, ok := strings.CutPrefix(begun, s.tags.open); ok {
			s.state, s.held = thinking, rest
		} else if rest, ok := strings.CutPrefix(begun, s.tags.close); ok { // of reasoning that did not begin
			s.state, s.held = concluded, rest
		} else if !strings.HasPrefix(s.tags.open, begun) && !strings.HasPrefix(s.tags.close, begun) {
			s.state = answering
		}
	}
	if s.state == thinking {
		p.Reasoning = s.think()
	}
	if s.state == concluded {
		if s.held = strings.TrimLeft(s.held, whiteSpace); s.held != "" {
			s.state = answering
		}
	}
	if s.state == answering {
		p.Text, s.held = s.held, ""
	}
	return p
}

// think returns held reasoning up to the closing tag, without what may be the beginning of the tag or of white space
// before it.
func (s *thoughts) think() (reasoning string) {
	if !s.written {
		s.held = strings.TrimLeft(s.held, whiteSpace)
	}
	before, after, closed := strings.Cut(s.held, s.tags.close)
	if closed {
		s.state, s.held = concluded, after
		return strings.TrimRight(before, whiteSpace)
	}
	reasoning = strings.TrimRight(s.held[:len(s.held)-partial(s.held, s.tags.close)], whiteSpace)
	s.held = s.held[len(reasoning):]
	s.written = s.written || reasoning != ""
	return reasoning
}

func (s *thoughts) end() (p Part) {
	switch s.state {
	case thinking:
		p.Reasoning = strings.TrimRight(s.held, whiteSpace)
	case beginning:
		p.Text = s.held
	}
	s.held = ""
	return p
}

// channels separate the messages of an answer in harmony: those of the channel final are the answer, those of others
// are reasoning. Text before the first channel is the answer.
type channels struct {
	inHeader bool
	header   string // of the message: a role, or a channel and what follows it
	named    bool   // the header has a channel
	thinking bool
	written  bool // reasoning of an earlier message
	gap      bool // the next reasoning is that of another message
}

func (s *channels) next(special, text string) (p Part) {
	switch {
	case s.inHeader:
		s.header += text
	case !s.thinking:
		p.Text = text
	case text != "":
		if p.Reasoning = text; s.gap {
			p.Reasoning = "\n\n" + text
		}
		s.written, s.gap = true, false
	}
	switch special {
	case harmonyStart, harmonyChannel:
		s.inHeader, s.named, s.header = true, special == harmonyChannel, ""
	case harmonyMessage:
		channel, _, _ := strings.Cut(strings.TrimSpace(s.header), " ")
		s.inHeader, s.thinking, s.gap = false, s.named && channel != harmonyFinal, s.written
	}
	return p
}

func (s *channels) end() Part { return Part{} }
