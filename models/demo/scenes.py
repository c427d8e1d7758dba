"""Further kinds of text: repairs, journeys, letters, explanations, descriptions.

Tables of causes and steps carry the sense; the templates around them carry the
variety. What a machine does in a text is what such a machine does.
"""

from grammar import a, number
from stories import PLACES, cast, lesson, opening

REPAIRS = [
    # machine, complaint, first guess, what was found, remedy, effect
    ("pump", "it {hummed|groaned} but brought no water", "the motor", "a {leaf|small stone|piece of cloth} in the pipe", "took it out", "the water came at once"),
    ("clock", "it {lost|was slow by} ten minutes a day", "the spring", "old, thick oil on the wheels", "cleaned the wheels and put on {a drop of |}new oil", "it kept good time"),
    ("fan", "it shook and made a {loud|terrible} noise", "the motor", "a ball of dust on one blade", "brushed the blades clean", "it turned without a sound"),
    ("computer", "it went off whenever it had much to do", "the program", "a heat sink full of dust", "cleaned it and put it back with {fresh|new} paste", "it stayed cool even at full speed"),
    ("bicycle", "it was hard to {ride|push} even on flat roads", "the rider", "a brake that rubbed on the wheel", "loosened the brake by one turn", "it rolled as if by itself"),
    ("refrigerator", "it was {warm inside|never cold}, although it ran day and night", "the motor", "a {crack|tear} in the seal of the door", "put in a new seal", "it was cold and quiet again"),
    ("radio", "it was {silent|dead} since the thunder", "the aerial", "a thin wire that had melted", "joined a new wire", "it {played|spoke} again"),
    ("mill", "the stones turned slowly and the flour was warm", "the water", "a dry bearing", "filled the bearing with grease", "the wheel ran lightly and the flour stayed cool"),
    ("lamp", "it {flickered|went on and off}", "the bulb", "a loose screw in the switch", "tightened the screw", "it burned steadily"),
    ("robot", "it walked in circles", "its mind", "one wheel that was smaller than the other", "changed the tyre", "it walked straight ahead"),
    ("boat", "it was slower than last year with the same motor", "the motor", "{weed and shells|a thick coat of shells} on the hull", "scraped the hull clean", "it went as fast as before with half the power"),
    ("server", "its answers came late in the afternoon", "the network", "that the sun shone on it through the window, so that it had to slow its clock", "moved it to the north side", "the answers came in time all day"),
    ("kettle", "it took {twice as long as|much longer than} before", "the switch", "a thick layer of limescale", "boiled some vinegar in it and rinsed it", "the water was hot in three minutes"),
    ("train model", "it stopped at the same place every time", "the motor", "dirt on the rail, so that no current could pass", "rubbed the rail clean", "it ran round and round"),
]

PORTABLE = {"pump", "clock", "fan", "computer", "bicycle", "radio", "lamp", "robot", "kettle", "train model"}


def repair(w):
    """Somebody brings a machine that fails; the cause is found and mended."""
    c = cast(w)
    machine, complaint, guess, found, remedy, effect = (w.say(x) for x in w.pick(REPAIRS))
    c.update(machine=machine, complaint=complaint, guess=guess, found=found, remedy=remedy, effect=effect,
             price=w.pick(["a loaf of bread", "two coins", "a basket of apples", "nothing", "a cup of tea", "a song", "a jar of honey"]))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("{Before long|Not long after|A little later|Then} $friend " + ("{came|came in} with {an old|a broken|a heavy} $machine." if machine in PORTABLE
              else "{came and |}asked $who to look at {the old|the|$fhis} $machine."), **c),
        w.say("\"{It is broken|Something is wrong with it|Can you help me}{,|}\" said $friend.".replace("{,|}", ",") + " \"{It began last week|It began yesterday|This is what happens}: $complaint.\"", **c),
        w.say("{\"It must be $guess,\" said $friend.|$Friend thought it was $guess.|Everybody said it was $guess.} {But $who wanted to see it first.|\"Let us not guess,\" said $who.|$Who {said nothing and listened|listened to it for a while}.}", **c),
        w.say("{Carefully $he opened it|$He took it apart, screw by screw,|$He {opened the cover|looked inside with a lamp}} and found $found.".replace("opened it|", "opened it|"), **c),
        w.say("{\"A small thing,\" said $who, \"but it costs a lot of energy.\"|\"There it is,\" said $who.|It was {no great thing|a small thing}, but it {was enough|did great harm}.|}", **c),
        w.say("$Who $remedy, and $effect.", **c),
        w.say("{\"What do I owe you?\" asked $friend. \"{Only|Just} $price,\" said $who.|$Friend thanked $him and {gave $him $price|carried the $machine home}.|}", **c).replace("Only nothing", "Nothing").replace("Just nothing", "Nothing at all").replace("gave her nothing", "went home").replace("gave him nothing", "went home"),
        lesson(w, c),
    ]))


CHAINS = [
    ["The sun {warms|shines on} the sea", "water rises {as vapour|into the air} and forms clouds", "rain falls on the {hills|mountains}", "the river turns a turbine", "the generator makes current", "a lamp shines in a {kitchen|window}"],
    ["The sun shines on a field", "the wheat stores the light as starch", "the miller grinds it and the baker bakes it", "a girl eats the bread", "she rides her bicycle up the hill", "the brakes turn the motion into heat on the way down"],
    ["The wind {pushes|turns} the blades", "the blades turn a generator", "the current fills a battery", "the battery feeds a motor", "the motor lifts a {heavy load|stone}", "the stone could fall and give the energy back"],
    ["Light falls on a panel", "electrons begin to move", "the current runs through a processor", "millions of switches turn on and off", "a model writes a word", "the fan blows the heat out of the window"],
    ["A fire heats water", "the water becomes steam", "the steam pushes a piston", "the piston turns a wheel", "the wheel pulls a train", "the train rolls out and its brakes grow warm"],
    ["A hand winds up a spring", "the spring turns a small wheel", "the wheel moves the hands of a clock", "every tick makes a little sound", "the sound warms the air by a {very |}tiny amount"],
    ["A train rolls down a hill", "its motors work as generators", "current flows into the line", "another train at the foot of the hill takes it", "that train climbs up", "on the top it has the energy that the first one had"],
]


def journey(w):
    """One joule on its way, step by step."""
    chain = [w.say(x) for x in w.pick(CHAINS)]
    start = w.say("{Where does the energy go? Let us follow it.|Follow a joule on its way.|A joule never rests for long.|Here is the story of a {single |}joule.|Energy changes its form many times.|What happens to energy on its way? Here is an example.}")
    links = w.pick([["", "Then ", "After that ", "Next ", "Then ", "At last "], ["", "There ", "So ", "Now ", "Then ", "In the end "], ["First, ", "Second, ", "Third, ", "Fourth, ", "Fifth, ", "Sixth, "]])
    body = " ".join(link + (s[0].lower() + s[1:] if link else s) + "." for link, s in zip(links, chain))
    end = w.say("{Nothing was lost; it only changed its form.|The joule is still there, but now it is spread out as heat.|In the end there is only a little warmth, and nobody can {catch|use} it any more.|At every step a part became heat.|That is how it goes: energy changes, but its amount stays the same.|}")
    return " ".join(filter(None, [start, body, end]))


NEWS = [
    "We {have|got} a new heat pump, and it brings three times as much heat as it takes current", "The panel on {our|the} roof gave {five|six|eight|ten} kilowatt hours yesterday",
    "I found out that the old lamp in the hall used more than the radio and the router together", "My computer writes little stories now, and each word costs about {one joule|two joules|half a joule}",
    "The train from the {hills|coast} gives energy back when it comes down", "The {river|stream} was high, and the mill ran all night", "I {cleaned|have cleaned} the fan, and now I can hear the birds again",
    "Our meter counts every second, and I {like to|often} watch it when the kettle is on", "The battery of the boat is weak in this cold, so I row", "I learned that moving a number costs more energy than adding it",
    "The wind was so strong that they {had to stop|stopped} the turbine", "I {tried|tested} two models: the small one answered with a tenth of the energy, and I did not see a difference",
]
ASKS = ["How is your {mill|boat|garden|workshop}?", "How much does your kettle use?", "Do you still measure everything?", "Have you {mended|repaired} the pump?", "Is your workshop still so cold?", "What does your meter show at night?", "When will you come and see it?"]


def letter(w):
    c = cast(w)
    news = [w.say(x) for x in w.sample(NEWS, w.rng.randint(2, 3))]
    c.update(place=w.pick(PLACES), thanks=w.say("{Thank you for your letter.|I hope you are well.|It is late, and the lamp is on.|It has been raining for {three|four|five} days.|You asked me for news.|I am sitting by the window{ with a cup of tea|}.}"))
    body = news[0] + "." + "".join(w.say(" {Also, |And |Besides, |Then there is this: |}", **c).rstrip(" ") + " " + n + "." for n in news[1:])
    for word in ("Also, ", "And ", "Besides, ", "Then there is this: "):
        for n in news[1:]:
            if not n.startswith("I "):
                body = body.replace(word + n, word + n[0].lower() + n[1:])
    return w.say("Dear $friend, $thanks $body $ask {Yours,|Your friend,|With best wishes,|Greetings from the $place,} $who", body=" ".join(body.split()), ask=w.say(w.pick(ASKS)), **c)


HOW = [
    ("a refrigerator", "work", ["A {liquid|fluid} runs through thin pipes", "Inside the box it becomes a gas, and this takes up heat", "A pump presses the gas together, and it becomes hot", "At the back it gives its heat to the room and is a liquid again"]),
    ("a dynamo", "make current", ["A magnet turns beside a coil of wire", "The changing magnetic field pushes the electrons in the wire", "The faster it turns, the higher the voltage", "It is harder to turn when a lamp is on, because the energy must come from somewhere"]),
    ("a battery", "give current", ["There are two different metals in it, and something between them that carries charge", "One metal gives electrons away and the other takes them", "The electrons go through the wire and do work on their way", "When there is nothing left to give, the battery is empty"]),
    ("a heat pump", "warm a house", ["It takes heat from the cold air outside", "A pump lifts this heat to a higher temperature", "The heat goes into the rooms", "For one part of current it brings about three parts of heat"]),
    ("a steam engine", "pull a train", ["A fire boils water in a closed kettle", "The steam needs more room and pushes a piston", "A rod turns the wheels", "Most of the heat goes out with the smoke, so only a small part becomes motion"]),
    ("a solar panel", "make current", ["Light falls on a thin slice of silicon", "It knocks electrons loose", "They can go only one way, through the wire", "So a current flows as long as there is light"]),
    ("a language model", "write a text", ["First it reads the whole prompt, which is called prefill", "Then it guesses the next token", "It adds this token to the text and begins again", "For every token all the weights are read from memory, and this costs most of the energy"]),
    ("a processor", "add two numbers", ["The numbers come from memory into registers", "Tiny switches turn on and off and form the sum", "The sum goes back to memory", "Fetching the numbers costs much more energy than adding them"]),
    ("a cache", "save energy", ["It is small and lies close to the processor", "It keeps the numbers that were used a short time ago", "If a number is there, no long way to the main memory is needed", "A short way costs less energy than a long one"]),
    ("a wind turbine", "make power", ["The wind pushes the blades", "The blades turn an axle and the axle turns a generator", "When the wind is twice as fast, it brings eight times the power", "In a storm the blades are turned aside, so that nothing breaks"]),
    ("an electric train", "save energy", ["Its steel wheels roll with little friction", "When it brakes, the motors become generators", "The current goes back into the line", "Another train can use it at once"]),
    ("a thermostat", "keep a room warm", ["It feels how warm the room is", "When it is too cold, it turns the heater on", "When it is warm enough, it turns the heater off", "So the heater never works longer than it must"]),
    ("an energy meter", "count", ["It measures the voltage and the current many times a second", "It multiplies them, and that is the power", "It adds up power times time", "The sum is the energy, and the display shows it in kilowatt hours"]),
    ("a lamp", "give light", ["Current flows through a small crystal", "The electrons fall into a lower state and give off light", "Only a part of the energy becomes heat", "So a lamp of eight watts is as bright as an old bulb of sixty"]),
    ("a transformer", "change the voltage", ["Two coils are wound on one iron core", "The current in the first makes a changing magnetic field", "The field makes a voltage in the second", "With more turns of wire the voltage is higher and the current smaller"]),
    ("a hot water bottle", "stay warm", ["Water holds a lot of heat", "Each litre gives off about 4.2 kilojoules for every degree it cools", "The rubber and the cloth let the heat out slowly", "So it is still warm in the morning"]),
]


def how_it_works(w):
    thing, does, steps = w.pick(HOW)
    steps = [w.say(s) for s in steps]
    start = w.say("{How does $thing $does?|Question: How does $thing $does?\nAnswer:|Explain how $thing can $does.|This is how $thing can $does.|Have you ever wondered how $thing can $does?}", thing=thing, does=does)
    style = w.rng.randint(0, 2)
    if style == 0 and not start.endswith("Answer:"):
        return start + "\n" + "\n".join(f"{i + 1}. {s}." for i, s in enumerate(steps))
    if style == 1:
        return start + " " + " ".join(s + "." for s in steps)
    links = ["", "Then ", "After that, ", "And "] if all(not s.startswith(("Then", "First", "So", "For", "If", "Most")) for s in steps) else ["", "", "", ""]
    return start + " " + " ".join(l + (s[0].lower() + s[1:] if l else s) + "." for l, s in zip(links, steps))


def robot_day(w):
    """A day of a machine, with its battery as the clock."""
    c = cast(w)
    name = w.pick(["Bolt", "Pip", "Copper", "Seven", "Tick", "Ember", "Rivet", "Spark", "Coil", "Dot"])
    level = w.pick([100, 95, 90])
    jobs = w.sample([("swept the hall", 10), ("carried the milk to the station", 20), ("watered the garden", 15), ("brought letters to the upper street", 25), ("counted the books in the library", 5),
                     ("pushed the cart of the baker", 30), ("washed the windows", 15), ("read a story to the children", 5), ("looked for a lost cat", 20), ("painted the fence", 10)], 3)
    parts = [w.say("{In a $place there was a small robot {called|named} $name.|$Name was a small robot that {belonged to|worked for} $who.|$Who had built a {small|round|blue|tin} robot and called it $name.} In the morning its battery was at $level percent.", name=name, level=level, **c)]
    times = w.pick([["First", "Then", "In the afternoon"], ["Before breakfast", "At noon", "Towards evening"], ["At eight", "At eleven", "At four"]])
    for when, (job, cost) in zip(times, jobs):
        level -= cost
        parts.append(w.say("$when it $job, and the battery {fell|went down} to $level percent.", when=when, job=job, level=level))
        if w.chance(0.35):
            parts.append(w.say("{\"Thank you,\" said $friend.|It met $friend{, who waved|}.|The sun was shining.|It {began|had begun} to rain.|\"You are a hard worker,\" said $friend.}", **c))
    if level < 40:
        parts.append(w.say("{There was just enough left for the way home.|\"I must save energy now,\" said $name, and it walked home slowly.|It dimmed its lamp and rolled home down the hill.|}", name=name))
    else:
        parts.append(w.say("{There was a lot left, so it lit the way for $who.|It had energy left and {played a song|danced a little}.|}", **c))
    parts.append(w.say("{At night it stood at the {charger|wall} and slept{, and the battery filled slowly|}.|$Who plugged it in and said good night.|Then it went to sleep, and its lamp glowed {green|softly}.|In the dark it charged its battery and waited for the next day.}", **c))
    return " ".join(filter(None, parts))


def choice(w):
    """A decision between two ways, settled by a sum of power and time."""
    c = cast(w)
    job, (p1, m1), (p2, m2) = w.pick([
        ("dry the apples", (500, 120), (1200, 30)), ("pump water to the roof", (200, 60), (480, 20)), ("print the book", (100, 90), (300, 20)), ("draw the map", (60, 60), (240, 10)),
        ("translate the letters", (40, 90), (300, 15)), ("heat the bath", (2000, 60), (700, 60)), ("saw the logs", (1500, 20), (800, 60)), ("train the little model", (80, 300), (400, 30)), ("grind the corn", (300, 60), (900, 30)),
    ])
    e1, e2 = p1 * m1 / 60, p2 * m2 / 60
    first_wins = e1 < e2
    c.update(job=job, p1=number(p1), m1=m1, p2=number(p2), m2=m2, e1=number(e1), e2=number(e2), win="first" if first_wins else "second", fewer=number(min(e1, e2)), more=number(max(e1, e2)))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("$Who {wanted|had} to $job, and there were two ways to do it.", **c),
        w.say("The first {needed|took} $p1 watts for $m1 minutes, {the|and the} second {needed|took} $p2 watts for $m2 minutes.", **c),
        w.say("\"{The first one draws less power|The smaller number is better|The faster one is always better|Take the strong one and be done},\" said $friend.", **c),
        w.say("\"{Power is not energy|We must multiply by the time|Let us count},\" said $who. \"$P1 watts for $m1 minutes {is|makes} $e1 watt hours, and $p2 watts for $m2 minutes {is|makes} $e2.\"".replace("$P1", "$p1"), **c),
        w.say("{So they chose the $win way|They took the $win way}{ and saved the difference| and used only $fewer watt hours|}.", **c),
        w.say("{\"I would have guessed wrong,\" said $friend.|$Friend {nodded|was surprised}.|\"Good that we counted,\" said $friend.|}", **c),
        lesson(w, c) if w.chance(0.6) else "",
    ]))


def portrait(w):
    """A still picture of a machine in a place."""
    machine, sound, heat, work = (w.say(x) for x in w.pick([
        ("an old mill", "the water murmurs and the wood creaks", "only the axle is a little warm", "it grinds corn for the {whole village|bakers}"),
        ("a server room", "a thousand small fans sing one note", "the air behind the machines is as warm as summer", "somewhere in it a model answers a question"),
        ("an old train", "the wheels click over the rails", "the brakes are cold, because the motors do the braking", "it carries sleeping people to the sea"),
        ("a workshop", "a lathe hums and a clock ticks", "the stove glows in the corner", "chairs and wheels are made here"),
        ("a power station under a dam", "the turbines hum deep in the floor", "the bearings are warm to the hand", "it feeds the lamps of {three|four|five} towns"),
        ("a lighthouse", "the wind sings around the tower", "the lamp is warm, and moths sit near it", "it shows the ships the way"),
        ("a small kitchen", "the kettle begins to sing", "steam clouds the window", "tea is made for {two|four|six}"),
        ("a wind park on a hill", "the blades sweep the air with a slow sigh", "nothing is hot here but the noon sun", "it turns a breeze into light"),
        ("a laptop on a table", "its fan turns slowly and then rests", "the metal is warm where the processor lies", "it writes a story, word by word"),
    ]))
    place = w.pick(["not far from here", "a short walk from here", "at the edge of the town", "in the north of the land", "far away from here", "in the next town"])
    bits = [w.say("{Imagine|Think of|Picture} $machine $place.|There is $machine $place.|$place there is $machine.|If you {look around|go on}, you may find $machine.".join(["{", "}"]), machine=machine, place=place),
            w.say("{Listen: |At first you {only |}hear it: |}$s.", s=sound), w.say("{Put out your hand: |If you come near, you {feel|notice} that |}$h.", h=heat), w.say("{Day after day|Hour after hour|Quietly|Year after year|Without a pause}, $k.", k=work)]
    bits = [b[0].upper() + b[1:] for b in bits]
    bits.append(w.say("{Each second some joules come in and the same number goes out.|What comes in as power goes out as {work and heat|heat in the end}.|Nobody sees the energy, but everything here lives on it.|A meter on the wall counts it all.|It draws {less than you would think|more by day and less by night}.|}"))
    return " ".join(filter(None, bits))


KINDS = [repair, repair, journey, letter, how_it_works, how_it_works, robot_day, choice, portrait]


def scene(w):
    return w.pick(KINDS)(w)
